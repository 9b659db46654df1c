package testenv

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// Run runs a command in the root of the repository, and returns its output.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = Root()
	var output, problems bytes.Buffer
	command.Stdout, command.Stderr = &output, &problems
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, problems.String())
	}
	return output.String()
}

// Decode returns the objects of a manifest.
func Decode(t testing.TB, manifest string) (objects []*unstructured.Unstructured) {
	t.Helper()
	documents := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := documents.Decode(object); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}
