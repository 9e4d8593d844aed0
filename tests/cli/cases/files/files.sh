# Inputs that do not exist, are directories or cannot be read; outputs that cannot be written.
array '<f4' '(3,)' "$f4_123" >in.npy
mkdir dir
told napier softmax missing.npy
told napier softmax missing.npy -o out.npy
told napier softmax ''
told napier softmax dir
told napier softmax - <dir
told napier softmax in.npy -o dir
told napier softmax in.npy -o missing/out.npy
told napier softmax in.npy -o ''
told napier softmax in.npy/x
ls -A
