# The projection, its options and special rows, blocks of few rows, axes.
echo 1,1.5,0.25,-3 | run napier sparsemax -
echo 1,1.5,0.25,-3 | run napier sparsemax - --temperature 4
echo 1e30,0,-1e30,1e30 | run napier sparsemax - --dtype f16
cat >in.csv <<END
a,b,c
-inf,-inf,-inf
nan,1,2
inf,1,2
-inf,1,2
1000000,1000000.25,0
END
told napier sparsemax in.csv
told napier sparsemax in.csv --masked-rows zero --buffer 1 --threads 2
told napier sparsemax in.csv --axis 0
told napier sparsemax in.csv --axis all
told napier sparsemax in.csv --temperature 0
told napier sparsemax in.csv --rows
