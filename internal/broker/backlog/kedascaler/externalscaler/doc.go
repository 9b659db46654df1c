// Package externalscaler is generated from externalscaler.proto with Debian's
// protobuf-compiler 3.21.12, protoc-gen-go 1.36.11 and protoc-gen-go-grpc 1.6.0.
package externalscaler

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative externalscaler.proto
