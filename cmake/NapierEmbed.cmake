# napier_embed(target file name): the file as a C array in a generated header, NAME.h, which `target` may include:
# `static const unsigned char NAME[]`, with a 0 at its end.
function(napier_embed target file name)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/embedded")
  cmake_path(GET file FILENAME source)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n"
    bytes "${bytes}")
  file(CONFIGURE OUTPUT "${folder}/${name}.h" CONTENT
    "/* Made from ${source}. */\nstatic const unsigned char ${name}[] = {\n@bytes@0x00};\n" @ONLY)
  target_include_directories(${target} PRIVATE "${folder}")
endfunction()
