package sessionarchive

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/poll"
)

// startArchive runs the container, and returns the directory with its socket and a function that ends it.
func startArchive(t *testing.T, args ...string) (directory string, end func() error) {
	t.Helper()
	directory = t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, append([]string{"--directory", directory}, args...), func(name string) string {
			return map[string]string{"AGENTIC_NAMESPACE": "a", "AGENTIC_SESSION": "demo", "AGENTIC_JOB": "demo-r1-a1"}[name]
		}, io.Discard)
	}()
	return directory, func() error { cancel(); return <-ended }
}

func open(t *testing.T, directory string) *Writer {
	t.Helper()
	w, err := Open(t.Context(), directory)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// stored returns the only file below a directory, and its text.
func stored(t *testing.T, directory string) (name, text string) {
	t.Helper()
	err := filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if name != "" {
			t.Errorf("a second file: %s", path)
		}
		raw, err := os.ReadFile(path)
		name, text = strings.TrimPrefix(path, directory+"/"), string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return name, text
}

func TestTranscriptIsStoredInTheClaim(t *testing.T) {
	claim := t.TempDir()
	directory, end := startArchive(t, "--claim", claim)
	w := open(t, directory)
	_, _ = w.Write([]byte("{\"type\":\"text\"}\n"))
	got := w.Close(t.Context())
	name, text := stored(t, claim)
	if got.Error != "" || got.Truncated || got.Location != name || !strings.HasPrefix(name, "a/demo/2") || !strings.HasSuffix(name, "Z-demo-r1-a1.ndjson") {
		t.Errorf("stored %+v as %s", got, name)
	}
	if text != "{\"type\":\"text\"}\n" {
		t.Errorf("text %q", text)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// Files, such as commits that could not be pushed, are stored beside the transcript, unless the runner did not send them completely.
func TestFilesAreStoredBesideTheTranscript(t *testing.T) {
	claim := t.TempDir()
	directory, end := startArchive(t, "--claim", claim)
	w := open(t, directory)
	_, _ = w.Write([]byte("{\"type\":\"text\"}\n"))
	want := strings.Repeat("0123456789", maxPartBytes/4)
	if err := w.WriteFile("shop.bundle", strings.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteFile("empty.bundle", strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(filePrefix + `"part.bundle","data":"YQ=="}` + "\n"))
	got := w.Close(t.Context())
	if err := end(); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{"shop.bundle": want, "empty.bundle": ""} {
		raw, err := os.ReadFile(filepath.Join(claim, got.Files[name]))
		if err != nil || string(raw) != text || !strings.HasSuffix(got.Files[name], "Z-demo-r1-a1-"+name) {
			t.Errorf("%s is %q with %d bytes, error %v", name, got.Files[name], len(raw), err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(claim, got.Location))
	if err != nil || string(raw) != "{\"type\":\"text\"}\n" || got.Error != "" || len(got.Files) != 2 {
		t.Errorf("transcript %q, error %v, stored %+v", raw, err, got)
	}
	if left, _ := filepath.Glob(filepath.Join(claim, ".*")); len(left) > 0 {
		t.Errorf("left files: %v", left)
	}
}

func TestFilesOutsideOfTheArchiveAreRefused(t *testing.T) {
	claim := t.TempDir()
	directory, end := startArchive(t, "--claim", claim)
	w := open(t, directory)
	if err := w.WriteFile("../../evil", strings.NewReader("evil")); err != nil {
		t.Fatal(err)
	}
	got := w.Close(t.Context())
	if err := end(); err != nil {
		t.Error(err)
	}
	if got.Error == "" || got.Location == "" || len(got.Files) != 0 {
		t.Errorf("stored %+v", got)
	}
}

// The runner is killed, or the node evicts it: what it wrote is stored without an answer that anybody reads.
func TestTranscriptOfARunnerThatWasKilledIsStored(t *testing.T) {
	claim := t.TempDir()
	directory, end := startArchive(t, "--claim", claim)
	w := open(t, directory)
	_, _ = w.Write([]byte("first\nsec"))
	_ = w.connection.Close()
	if err := end(); err != nil { // SIGTERM does not interrupt the storing
		t.Error(err)
	}
	if name, text := stored(t, claim); !strings.HasSuffix(name, ".ndjson") || text != "first\nsec\n" {
		t.Errorf("%s has %q", name, text)
	}
}

// Otherwise an agent could write transcripts of its own.
func TestOnlyOneConnectionIsAccepted(t *testing.T) {
	directory, end := startArchive(t, "--claim", t.TempDir())
	w := open(t, directory)
	defer func() { w.Close(t.Context()); _ = end() }()
	poll.Until(t, "the socket to be removed, so that nothing can connect", func() bool {
		_, err := os.Stat(filepath.Join(directory, socketName))
		return os.IsNotExist(err)
	})
}

func TestContainerThatNoRunnerReachedEndsWithSIGTERM(t *testing.T) {
	directory, end := startArchive(t, "--claim", t.TempDir())
	poll.Until(t, "the socket", func() bool {
		_, err := os.Stat(filepath.Join(directory, socketName))
		return err == nil
	})
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestLongTranscriptsAreTruncatedAtALine(t *testing.T) {
	out := &strings.Builder{}
	truncated, err := copyTranscript(out, strings.NewReader("12345\n6789\n1\n"), 12, nil)
	if want := "12345\n6789\n" + `{"type":"runner","text":"The transcript is too long. Its rest is not archived."}` + "\n"; err != nil || !truncated || out.String() != want {
		t.Errorf("%q, truncated %v, error %v", out, truncated, err)
	}
}

func TestClaimThatCannotBeWrittenIsReported(t *testing.T) {
	directory, end := startArchive(t, "--claim", t.TempDir()+"/missing")
	w := open(t, directory)
	_, _ = w.Write([]byte("a\n"))
	if got := w.Close(t.Context()); !strings.Contains(got.Error, "no such file") {
		t.Errorf("%+v", got)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestArchiveThatDoesNotAnswerIsReportedAndDelaysNothing(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	server := newTestStore(t, func(http.ResponseWriter, *http.Request) { <-hang })
	directory, _ := startArchive(t, server.arguments()...)
	w := open(t, directory)
	_, _ = w.Write([]byte("a\n"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := w.Close(ctx); !strings.Contains(got.Error, "did not answer in time") {
		t.Errorf("%+v", got)
	}
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"exactly one":                   nil,
		"exactly one of":                {"--claim", "/c", "--endpoint", "https://s3.example"},
		"requires --bucket":             {"--endpoint", "https://s3.example"},
		`"s3.example" is not a URL`:     {"--endpoint", "s3.example", "--bucket", "abc", "--credentials", "/c"},
		"flag provided but not defined": {"--other"},
	} {
		if _, end := startArchive(t, args...); true {
			if err := end(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v", args, err)
			}
		}
	}
}
