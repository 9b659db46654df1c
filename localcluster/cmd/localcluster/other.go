//go:build !linux

// Command localcluster runs a Kubernetes cluster on Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "localcluster runs on Linux only. Where Docker runs, CLUSTER=kind make demo uses kind.")
	os.Exit(1)
}
