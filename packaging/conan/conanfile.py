"""A recipe for Conan 2, which builds the checkout that it lies in: conan create packaging/conan [-o napier/*:model=False]"""
import pathlib
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rm, rmdir


class Napier(ConanFile):
    name = "napier"
    license = "Apache-2.0"
    description = "softmax, products, attention, UMAP and losses of language models: the same bits everywhere"
    topics = ("softmax", "attention", "umap", "grpo", "reproducible")
    package_type = "library"
    languages = "C"
    implements = ["auto_shared_fpic"]
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "model": [True, False]}
    default_options = {"shared": False, "fPIC": True, "model": True}

    def _checkout(self):
        return pathlib.Path(self.recipe_folder).parents[1]

    def set_version(self):
        header = (self._checkout() / "include" / "napier" / "types.h").read_text()
        self.version = re.search('VERSION_STRING "(.*)"', header).group(1)

    def export_sources(self):
        for part in ("CMakeLists.txt", "LICENSE", "README.md", "NEWS.md", "cmake/*", "include/*", "src/*"):
            copy(self, part, self._checkout(), self.export_sources_folder)

    def requirements(self):
        if self.options.model:  # tokenizer and model
            self.requires("cjson/1.7.18")
            self.requires("pcre2/10.44")
            self.requires("utf8proc/2.9.0")

    def validate(self):
        if self.settings.compiler == "msvc":
            raise ConanInvalidConfiguration("napier is C11 of gcc and clang, which Visual C++ does not read")
        if self.settings.os == "Windows" and self.settings.compiler == "gcc":
            raise ConanInvalidConfiguration("AVX code of gcc for Windows crashes (GCC bug 54412): use clang")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["NAPIER_MODEL"] = bool(self.options.model)
        for part in ("CLI", "TESTS", "EXAMPLES", "MPI", "CUDA", "CAIRO", "ZLIB"):
            toolchain.cache_variables[f"NAPIER_{part}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        package = pathlib.Path(self.package_folder)
        copy(self, "LICENSE", self.source_folder, package / "licenses")
        for folder in ("lib/cmake", "lib/pkgconfig", "share"):  # Conan's generators write the files of CMake and pkg-config
            rmdir(self, package / folder)
        if self.options.shared:
            rm(self, "*.a", package / "lib")

    def package_info(self):
        self.cpp_info.libs = ["napier"]
        self.cpp_info.set_property("cmake_file_name", "napier")
        self.cpp_info.set_property("cmake_target_name", "napier::napier")
        if not self.options.shared:
            self.cpp_info.set_property("cmake_target_aliases", ["napier::napier_static"])
        self.cpp_info.set_property("pkg_config_name", "napier")
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["m", "pthread"]
