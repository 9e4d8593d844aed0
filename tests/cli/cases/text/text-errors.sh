# The message says what is wrong, and where.
bad() {
    printf "$1" >in.csv
    run napier softmax in.csv
}
bad '1,2,3\n4,5\n'
bad '1,2,3\n4,5,6,7\n'
bad 'a,b,c\n1,2\n'
bad '# x\n\n1,2\n3\n'
bad '1,2\n3,x\n'
bad '1,x\n3,4\n'
bad '1,,2\n'
bad '1,2,\n'
bad '1,2\n,\n'
bad '1,2\n3,"4\n'
bad '1,2\n3,"4"x\n'
bad 'a,b\n'
bad '\n\n'
bad '# only this\n'
bad '1 2 3\n'
bad '1,0x10\n'
bad '1,nan(1)\n'
bad '1,1e\n'
bad '1,--1\n'
bad '1,1_000\n'
bad '1,\033[31m\001 and a text that goes on and on and on and on\n'
bad '1,2\0003\n'
bad '0x10,2\n3,4\n'
bad '"1,000",2\n3,4\n'
bad '.1_000,x,2\n3,4,5\n'
: >in.csv
run napier softmax in.csv
