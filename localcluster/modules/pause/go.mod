module github.com/yardmaster/yardmaster/localcluster/modules/pause

go 1.26.0
