//go:build tools

// Package kwok pins the program that plays the part of nodes and their Pods.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
