//go:build tools

// Package kwok pins the program that simulates nodes and their Pods.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
