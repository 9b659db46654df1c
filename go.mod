module github.com/yardmaster/yardmaster

go 1.26.0
