// Package controllers lists the operator's controllers for the generators.
package controllers

import (
	"os"
	"path/filepath"
)

// Watching returns the names of the controllers that work in the watched namespaces. Each controller has a directory with its
// Role in config; jobreport works in namespaces of its own.
func Watching(config string) (names []string, _ error) {
	entries, err := os.ReadDir(filepath.Join(config, "rbac", "controllers"))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.IsDir() && entry.Name() != "jobreport" {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}
