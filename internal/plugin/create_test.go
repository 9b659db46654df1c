package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestCreateFromArguments(t *testing.T) {
	c := newClientOf(t, "ada")
	words := []string{"seq", "create", "etl", "--image", "busybox:1.37", "--step", "extract=curl -o x example.org", "--step", "load=wc x"}
	if code, _, errOut := runPluginArgs(t, words, c); code != exitSuccess {
		t.Fatalf("exit code %d, stderr %q", code, errOut)
	}
	sj := &v1alpha1.SequentialJob{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "etl"}, sj))
	require.Equal(t, "busybox:1.37", sj.Spec.Template.Spec.Containers[0].Image)
	if len(sj.Spec.Containers) != 2 || sj.Spec.Containers[1].Name != "load" || sj.Spec.Containers[1].Command[2] != "wc x" {
		t.Errorf("steps %+v", sj.Spec.Containers)
	}

	prompt := filepath.Join(t.TempDir(), "prompt.md")
	require.NoError(t, os.WriteFile(prompt, []byte("Fix the failing test.\n"), 0o600))
	if code, _, errOut := runPluginWith(t, "session create fix --runner small --prompt-file "+prompt, c); code != exitSuccess {
		t.Fatalf("exit code %d, stderr %q", code, errOut)
	}
	s := &v1alpha1.AgenticSession{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "fix"}, s))
	if s.Spec.Prompt != "Fix the failing test.\n" || s.Spec.Runner != "small" || s.Spec.UserContext == nil || s.Spec.UserContext.UserID != "ada" {
		t.Errorf("spec %+v", s.Spec)
	}
}

func TestFilesAndStandardInputAreReadUpToALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	require.NoError(t, os.WriteFile(path, []byte("12345"), 0o600))
	for _, name := range []string{"-", path} {
		if got, err := readFile(name, strings.NewReader("12345"), 5); err != nil || string(got) != "12345" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if _, err := readFile(name, strings.NewReader("12345"), 4); err == nil || !strings.Contains(err.Error(), name+" has more than 4 bytes") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
