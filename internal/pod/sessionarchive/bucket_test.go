package sessionarchive

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"

	"github.com/yardmaster/yardmaster/test/require"
)

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

// setSecret changes the mounted Secret.
func (s *testStore) setSecret(secret string) {
	s.t.Helper()
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": testKeyID + "\n", "AWS_SECRET_ACCESS_KEY": secret} {
		require.NoError(s.t, os.WriteFile(filepath.Join(s.credentials, name), []byte(value), 0o600))
	}
}

func (s *testStore) arguments() []string {
	return []string{"--endpoint", s.URL, "--bucket", testBucket, "--prefix", "team/agents/", "--region", "eu-central-1", "--credentials", s.credentials}
}

// get returns the object with this location.
func (s *testStore) get(location string) string {
	s.t.Helper()
	object, err := s.backend.GetObject(s.t.Context(), testBucket, strings.TrimPrefix(location, "s3://"+testBucket+"/"), nil)
	if err != nil {
		s.t.Fatalf("%s: %v", location, err)
	}
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
		if got.Error != "" || !strings.HasPrefix(got.Location, "s3://transcripts/team/agents/a/demo/2") || !strings.HasSuffix(got.Location, "Z-demo-r1-a1.ndjson") {
			t.Fatalf("stored %+v", got)
		}
		if stored := store.get(got.Location); stored != text {
			t.Errorf("%d bytes instead of %d", len(stored), len(text))
		}
		end()
	}
	if got := store.authorizations[0]; len(store.authorizations) != 2 || !strings.HasPrefix(got, "AWS4-HMAC-SHA256 Credential="+testKeyID) || !strings.Contains(got, "/eu-central-1/s3/") {
		t.Errorf("requests %q", store.authorizations)
	}
}

// Nobody has to restart anything after the Secret was replaced.
func TestCredentialsAreReadWhenTheTranscriptIsStored(t *testing.T) {
	store := newTestStore(t, nil)
	store.setSecret("expired")
	w, end := openArchive(t, store.arguments()...)
	store.setSecret(testSecret)
	if got := w.Close(t.Context()); got.Error != "" {
		t.Errorf("%+v", got)
	}
	end()
}

func TestRefusedUploadsAreReportedWithoutTheSecret(t *testing.T) {
	store := newTestStore(t, nil)
	for want, change := range map[string]func() []string{
		"signature": func() []string { store.setSecret("another-secret-key"); return store.arguments() },
		"bucket":    func() []string { store.setSecret(testSecret); return append(store.arguments(), "--bucket", "missing") },
		"reading the Secret of the archive": func() []string {
			return append(store.arguments(), "--credentials", t.TempDir())
		},
	} {
		w, end := openArchive(t, change()...)
		_, _ = w.Write([]byte("a\n"))
		if got := w.Close(t.Context()); !strings.Contains(got.Error, want) || strings.Contains(got.Error, "secret-key") || got.Location != "" {
			t.Errorf("%s: %+v", want, got)
		}
		end()
	}
}
