//go:build tools

// Package runc pins the program that starts containers.
package runc

import _ "github.com/opencontainers/runc"
