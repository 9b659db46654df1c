package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const queueManifests = `apiVersion: yardmaster.dev/v1alpha1
kind: Queue
metadata: {name: one}
---
apiVersion: yardmaster.dev/v1alpha1
kind: Queue
metadata: {name: two, namespace: b}
`

func writeTestFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCreateFromAFile(t *testing.T) {
	c := newFakeClient(t)
	code, out, errOut := runPluginWith(t, "queue create -f "+writeTestFile(t, queueManifests), c)
	if code != exitSuccess || out != "queue.yardmaster.dev/one created\nqueue.yardmaster.dev/two created\n" || errOut != "" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
	for _, key := range []client.ObjectKey{{Namespace: "a", Name: "one"}, {Namespace: "b", Name: "two"}} {
		if err := c.Get(t.Context(), key, &v1alpha1.Queue{}); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestCreateFromArguments(t *testing.T) {
	c := newFakeClient(t)
	words := []string{"seq", "create", "etl", "--image", "busybox:1.37", "--step", "extract=curl -o x example.org", "--step", "load=wc x"}
	if code, _, errOut := runPluginArgs(t, words, c); code != exitSuccess {
		t.Fatalf("exit code %d, stderr %q", code, errOut)
	}
	sj := &v1alpha1.SequentialJob{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "etl"}, sj); err != nil {
		t.Fatal(err)
	}
	if got := sj.Spec.Template.Spec.Containers[0].Image; got != "busybox:1.37" {
		t.Errorf("image %q", got)
	}
	if len(sj.Spec.Containers) != 2 || sj.Spec.Containers[1].Name != "load" || sj.Spec.Containers[1].Command[2] != "wc x" {
		t.Errorf("steps %+v", sj.Spec.Containers)
	}

	prompt := writeTestFile(t, "Fix the failing test.\n")
	if code, _, errOut := runPluginWith(t, "session create fix --runner small --prompt-file "+prompt, c); code != exitSuccess {
		t.Fatalf("exit code %d, stderr %q", code, errOut)
	}
	s := &v1alpha1.AgenticSession{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "fix"}, s); err != nil {
		t.Fatal(err)
	}
	if s.Spec.Prompt != "Fix the failing test.\n" || s.Spec.Runner != "small" {
		t.Errorf("spec %+v", s.Spec)
	}
}

func TestCreateWithADryRunPrintsAManifestAndSendsNothing(t *testing.T) {
	c := newFakeClient(t)
	_, out, errOut := runPluginWith(t, "seq create etl --image busybox:1.37 --step load=true --dry-run=client -o yaml", c)
	var sj v1alpha1.SequentialJob
	if err := yaml.UnmarshalStrict([]byte(out), &sj); err != nil || sj.Kind != "SequentialJob" || sj.Name != "etl" {
		t.Errorf("%v, stderr %q:\n%s", err, errOut, out)
	}
	if strings.Contains(out, "status") || strings.Contains(out, "creationTimestamp: null") {
		t.Errorf("the manifest has empty fields:\n%s", out)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "etl"}, &v1alpha1.SequentialJob{}); err == nil {
		t.Error("the object was created")
	}
}

func TestCreateRejectsWhatItCannotCreate(t *testing.T) {
	file := func(content string) string { return writeTestFile(t, content) }
	for args, want := range map[string]string{
		"queue create orders":                        "set --filename",
		"seq create":                                 "set one NAME, or --filename",
		"seq create etl -f x":                        "set either a NAME or --filename",
		"seq create etl":                             "set --image and at least one --step",
		"session create fix":                         "set either --prompt or --prompt-file",
		"queue create -f /none":                      "open /none: no such file or directory",
		"seq create etl --image x --step load":       `invalid --step "load": must be NAME=SCRIPT`,
		"queue create --dry-run=maybe -f x":          `invalid --dry-run "maybe": must be one of none, client, server`,
		"queue create -f " + file(""):                "contains no object",
		"queue create -f " + file("kind: Pool"):      "contains a Pool, not a Queue of yardmaster.dev/v1alpha1",
		"queue create -f " + file("spec: {typo: 1}"): `unknown field "typo"`,
	} {
		t.Run(want, func(t *testing.T) {
			code, out, errOut := runPlugin(t, args)
			if code != exitError || out != "" || !strings.Contains(errOut, want) || strings.Count(errOut, "\n") != 1 {
				t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %q", args, code, out, errOut, want)
			}
		})
	}
}
