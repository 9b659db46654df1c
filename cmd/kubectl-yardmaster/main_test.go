package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestPluginIsAtMost45MB(t *testing.T) {
	const limit = 45_000_000
	binary := filepath.Join(t.TempDir(), "kubectl-yardmaster")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	require.True(t, err == nil, "%v\n%s", err, output)
	info, err := os.Stat(binary)
	require.NoError(t, err)
	require.True(t, info.Size() <= limit, "the plugin has %d bytes: package plugin imports a package that brings too much", info.Size())
}
