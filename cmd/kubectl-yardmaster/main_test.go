package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestPluginIsAtMost45MB(t *testing.T) {
	const limit = 45_000_000
	binary := filepath.Join(t.TempDir(), "kubectl-yardmaster")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > limit {
		t.Errorf("the plugin has %d bytes, want at most %d: package plugin imports a package that brings too much", info.Size(), limit)
	}
}
