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
	"github.com/yardmaster/yardmaster/test/require"
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

// openArchive runs the container for a transcript, and returns a function that ends it without an error.
func openArchive(t *testing.T, args ...string) (w *Writer, end func()) {
	t.Helper()
	directory, stop := startArchive(t, args...)
	w, err := Open(t.Context(), directory)
	require.NoError(t, err)
	return w, func() {
		t.Helper()
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// Files, such as commits that could not be pushed, are stored beside the transcript, unless the runner did not send them completely.
func TestFilesAreStoredBesideTheTranscript(t *testing.T) {
	claim := t.TempDir()
	w, end := openArchive(t, "--claim", claim)
	_, _ = w.Write([]byte("{\"type\":\"text\"}\n"))
	want := strings.Repeat("0123456789", maxPartBytes/4)
	require.NoError(t, w.WriteFile("shop.bundle", strings.NewReader(want)))
	require.NoError(t, w.WriteFile("empty.bundle", strings.NewReader("")))
	_, _ = w.Write([]byte(filePrefix + `"part.bundle","data":"YQ=="}` + "\n"))
	got := w.Close(t.Context())
	end()
	for name, text := range map[string]string{"shop.bundle": want, "empty.bundle": ""} {
		raw, err := os.ReadFile(filepath.Join(claim, got.Files[name]))
		if err != nil || string(raw) != text || !strings.HasSuffix(got.Files[name], "Z-demo-r1-a1-"+name) {
			t.Errorf("%s is %q with %d bytes, error %v", name, got.Files[name], len(raw), err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(claim, got.Location))
	if err != nil || string(raw) != "{\"type\":\"text\"}\n" || got.Error != "" || got.Truncated || len(got.Files) != 2 ||
		!strings.HasPrefix(got.Location, "a/demo/2") {
		t.Errorf("transcript %q, error %v, stored %+v", raw, err, got)
	}
	if left, _ := filepath.Glob(filepath.Join(claim, ".*")); len(left) > 0 {
		t.Errorf("left files: %v", left)
	}
}

func TestFilesOutsideOfTheArchiveAreRefused(t *testing.T) {
	claim := t.TempDir()
	w, end := openArchive(t, "--claim", claim)
	require.NoError(t, w.WriteFile("../../evil", strings.NewReader("evil")))
	got := w.Close(t.Context())
	end()
	if got.Error == "" || got.Location == "" || len(got.Files) != 0 {
		t.Errorf("stored %+v", got)
	}
}

// The runner is killed, or the node evicts it: what it wrote is stored without an answer that anybody reads.
func TestTranscriptOfARunnerThatWasKilledIsStored(t *testing.T) {
	claim := t.TempDir()
	w, end := openArchive(t, "--claim", claim)
	_, _ = w.Write([]byte("first\nsec"))
	_ = w.connection.Close()
	end() // SIGTERM does not interrupt the storing
	files := filesIn(t, claim)
	for name, text := range files {
		if len(files) != 1 || !strings.HasSuffix(name, ".ndjson") || text != "first\nsec\n" {
			t.Errorf("%s has %q", name, text)
		}
	}
	if len(files) == 0 {
		t.Error("nothing is stored")
	}
}

// Otherwise an agent could write transcripts of its own.
func TestOnlyOneConnectionIsAccepted(t *testing.T) {
	directory, end := startArchive(t, "--claim", t.TempDir())
	w, err := Open(t.Context(), directory)
	require.NoError(t, err)
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
	w, end := openArchive(t, "--claim", t.TempDir()+"/missing")
	_, _ = w.Write([]byte("a\n"))
	if got := w.Close(t.Context()); !strings.Contains(got.Error, "no such file") {
		t.Errorf("%+v", got)
	}
	end()
}

func TestArchiveThatDoesNotAnswerIsReportedAndDelaysNothing(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	server := newTestStore(t, func(http.ResponseWriter, *http.Request) { <-hang })
	w, _ := openArchive(t, server.arguments()...)
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
