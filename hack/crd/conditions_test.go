package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheTableOfConditionsIsUpToDate(t *testing.T) {
	t.Parallel()
	var kinds []string
	for _, crd := range definitions(t) {
		kinds = append(kinds, crd.Spec.Names.Kind)
	}
	path := filepath.Join(t.TempDir(), "conditions.md")
	if err := writeConditions("../../api/v1alpha1", path, kinds); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/reference/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run make manifests (-generated, +docs/reference/conditions.md):\n%s", diff)
	}
}
