# One fit of uwot, timed: Rscript uwot.R DATA.bin ROWS COLS EMBEDDING.bin THREADS [n_neighbors]. f32, row by row.
arguments <- commandArgs(trailingOnly = TRUE)
rows <- as.integer(arguments[2])
columns <- as.integer(arguments[3])
threads <- as.integer(arguments[5])
neighbors <- if (length(arguments) > 5) as.integer(arguments[6]) else 15L
suppressMessages(library(uwot))
x <- matrix(readBin(arguments[1], "numeric", n = rows * columns, size = 4), nrow = rows, byrow = TRUE)
set.seed(42)
begin <- proc.time()[["elapsed"]]
y <- umap(x, n_neighbors = neighbors, n_threads = threads, n_sgd_threads = threads, fast_sgd = TRUE, verbose = FALSE)
total <- proc.time()[["elapsed"]] - begin
writeBin(as.numeric(t(y)), arguments[4], size = 4)
peak <- sub("[^0-9]*([0-9]+).*", "\\1", grep("VmHWM", readLines("/proc/self/status"), value = TRUE))
cat(sprintf("{\"seconds\": %.4f, \"highest\": %.0f}\n", total, as.numeric(peak) * 1024))
