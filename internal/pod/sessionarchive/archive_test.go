package sessionarchive

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"

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
		require.NoError(t, stop())
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
		require.True(t, err == nil && string(raw) == text && strings.HasSuffix(got.Files[name], "Z-demo-r1-a1-"+name),
			"%s is %q with %d bytes, error %v", name, got.Files[name], len(raw), err)
	}
	raw, err := os.ReadFile(filepath.Join(claim, got.Location))
	require.True(t, err == nil && string(raw) == "{\"type\":\"text\"}\n", "transcript %q, error %v", raw, err)
	require.True(t, got.Error == "" && !got.Truncated && len(got.Files) == 2 && strings.HasPrefix(got.Location, "a/demo/2"), "stored %+v", got)
	left, _ := filepath.Glob(filepath.Join(claim, ".*"))
	require.True(t, len(left) == 0, "left files: %v", left)
}

func TestFilesOutsideOfTheArchiveAreRefused(t *testing.T) {
	claim := t.TempDir()
	w, end := openArchive(t, "--claim", claim)
	require.NoError(t, w.WriteFile("../../evil", strings.NewReader("evil")))
	got := w.Close(t.Context())
	end()
	require.True(t, got.Error != "" && got.Location != "" && len(got.Files) == 0, "stored %+v", got)
}

// The runner is killed, or the node evicts it: what it wrote is stored without an answer that anybody reads.
func TestTranscriptOfARunnerThatWasKilledIsStored(t *testing.T) {
	claim := t.TempDir()
	w, end := openArchive(t, "--claim", claim)
	_, _ = w.Write([]byte("first\nsec"))
	_ = w.connection.Close()
	end() // SIGTERM does not interrupt the storing
	files := filesIn(t, claim)
	require.True(t, len(files) == 1, "stored %v", files)
	for name, text := range files {
		require.True(t, strings.HasSuffix(name, ".ndjson") && text == "first\nsec\n", "%s has %q", name, text)
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
	require.NoError(t, end())
}

func TestLongTranscriptsAreTruncatedAtALine(t *testing.T) {
	out := &strings.Builder{}
	truncated, err := copyTranscript(out, strings.NewReader("12345\n6789\n1\n"), 12, nil)
	want := "12345\n6789\n" + `{"type":"runner","text":"The transcript is too long. Its rest is not archived."}` + "\n"
	require.True(t, err == nil && truncated && out.String() == want, "%q, truncated %v, error %v", out, truncated, err)
}

func TestArchiveThatDoesNotAnswerIsReportedAndDelaysNothing(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	server := newTestStore(t, func(http.ResponseWriter, *http.Request) { <-hang })
	w, _ := openArchive(t, server.arguments()...)
	_, _ = w.Write([]byte("a\n"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := w.Close(ctx)
	require.True(t, strings.Contains(got.Error, "did not answer in time"), "%+v", got)
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"exactly one":                   nil,
		"exactly one of":                {"--claim", "/c", "--endpoint", "https://s3.example"},
		"requires --bucket":             {"--endpoint", "https://s3.example"},
		`"s3.example" is not a URL`:     {"--endpoint", "s3.example", "--bucket", "abc", "--credentials", "/c"},
		"flag provided but not defined": {"--other"},
	} {
		_, end := startArchive(t, args...)
		require.ErrorContains(t, end(), want)
	}
}

const (
	testBucket = "transcripts"
	testKeyID  = "AKIDTEST"
	testSecret = "secret-key-of-the-archive"
)

// testStore is an object store in memory, which verifies signatures.
type testStore struct {
	*httptest.Server

	t           *testing.T
	credentials string
	backend     *s3mem.Backend
	// authorizations are the headers of the requests.
	authorizations []string
}

// newTestStore starts a store, or a server with this handler instead.
func newTestStore(t *testing.T, handler http.HandlerFunc) *testStore {
	t.Helper()
	s := &testStore{t: t, credentials: t.TempDir(), backend: s3mem.New()}
	s.setSecret(testSecret)
	require.NoError(t, s.backend.CreateBucket(t.Context(), testBucket))
	objects := gofakes3.New(s.backend, gofakes3.WithV4Auth(map[string]string{testKeyID: testSecret}), gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	if handler == nil {
		handler = func(w http.ResponseWriter, r *http.Request) {
			s.authorizations = append(s.authorizations, r.Header.Get("Authorization"))
			objects.ServeHTTP(w, r)
		}
	}
	s.Server = httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

func (s *testStore) setSecret(secret string) {
	s.t.Helper()
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": testKeyID + "\n", "AWS_SECRET_ACCESS_KEY": secret} {
		require.NoError(s.t, os.WriteFile(filepath.Join(s.credentials, name), []byte(value), 0o600))
	}
}

func (s *testStore) arguments() []string {
	return []string{"--endpoint", s.URL, "--bucket", testBucket, "--prefix", "team/agents/", "--region", "eu-central-1", "--credentials", s.credentials}
}

func (s *testStore) get(location string) string {
	s.t.Helper()
	object, err := s.backend.GetObject(s.t.Context(), testBucket, strings.TrimPrefix(location, "s3://"+testBucket+"/"), nil)
	require.True(s.t, err == nil, "%s: %v", location, err)
	defer object.Contents.Close()
	raw, err := io.ReadAll(object.Contents)
	require.NoError(s.t, err)
	return string(raw)
}

func TestTranscriptIsStoredInTheBucket(t *testing.T) {
	store := newTestStore(t, nil)
	for _, text := range []string{"{\"type\":\"text\"}\n", strings.Repeat(strings.Repeat("x", 1000)+"\n", 20_000)} { // 20 MB are one part too
		w, end := openArchive(t, store.arguments()...)
		_, _ = w.Write([]byte(text))
		got := w.Close(t.Context())
		require.True(t, got.Error == "" && strings.HasPrefix(got.Location, "s3://transcripts/team/agents/a/demo/2") &&
			strings.HasSuffix(got.Location, "Z-demo-r1-a1.ndjson"), "stored %+v", got)
		stored := store.get(got.Location)
		require.True(t, stored == text, "%d bytes instead of %d", len(stored), len(text))
		end()
	}
	require.True(t, len(store.authorizations) == 2, "requests %q", store.authorizations)
	for _, part := range []string{"AWS4-HMAC-SHA256 Credential=" + testKeyID, "/eu-central-1/s3/"} {
		require.Contains(t, store.authorizations[0], part)
	}
}

// Nobody has to restart anything after the Secret was replaced.
func TestCredentialsAreReadWhenTheTranscriptIsStored(t *testing.T) {
	store := newTestStore(t, nil)
	store.setSecret("expired")
	w, end := openArchive(t, store.arguments()...)
	store.setSecret(testSecret)
	got := w.Close(t.Context())
	require.True(t, got.Error == "", "%+v", got)
	end()
}

func TestRefusedUploadsAreReportedWithoutTheSecret(t *testing.T) {
	store := newTestStore(t, nil)
	for want, change := range map[string]func() []string{
		"signature":                         func() []string { store.setSecret("another-secret-key"); return store.arguments() },
		"bucket":                            func() []string { store.setSecret(testSecret); return append(store.arguments(), "--bucket", "missing") },
		"reading the Secret of the archive": func() []string { return append(store.arguments(), "--credentials", t.TempDir()) },
	} {
		w, end := openArchive(t, change()...)
		_, _ = w.Write([]byte("a\n"))
		got := w.Close(t.Context())
		require.True(t, strings.Contains(got.Error, want) && !strings.Contains(got.Error, "secret-key") && got.Location == "", "%s: %+v", want, got)
		end()
	}
}
