package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestAConditionWithoutAMeaningIsAnError(t *testing.T) {
	for title, source := range map[string]string{
		"no comment":           `const ConditionServing = "Serving"`,
		"a comment of a group": "// Types.\nconst (\n\tConditionServing = \"Serving\"\n)",
		"another beginning":    "// ConditionServing means that it serves.\nconst ConditionServing = \"Serving\"",
	} {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "types.go"), "package v1alpha1\n\n"+source+"\n")
		if err := writeConditions(dir, filepath.Join(dir, "page"), nil); err == nil || !strings.Contains(err.Error(), "the comment of ConditionServing must begin with") {
			t.Errorf("%s: error %v", title, err)
		}
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestTheTableOfConditionsIsUpToDate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conditions.md")
	var kinds []string
	for _, file := range slices.Sorted(maps.Keys(definitions(t))) {
		kinds = append(kinds, definitions(t)[file].Spec.Names.Kind)
	}
	require.NoError(t, writeConditions("../../api/v1alpha1", path, kinds))
	generated, err := os.ReadFile(path)
	require.NoError(t, err)
	tracked, err := os.ReadFile("../../docs/reference/conditions.md")
	require.NoError(t, err)
	require.True(t, bytes.Equal(generated, tracked), "docs/reference/conditions.md is out of date: run make manifests")
}
