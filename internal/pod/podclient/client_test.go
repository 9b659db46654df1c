package podclient

import (
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newTestClient returns a client of a server with this handler, and the directory with its token.
func newTestClient(t *testing.T, handler http.HandlerFunc) (client *Client, directory string) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	directory = t.TempDir()
	writeFile(t, filepath.Join(directory, "token"), "one\n")
	writeFile(t, filepath.Join(directory, "ca.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, err = New(func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}[name]
	}, directory)
	if err != nil {
		t.Fatal(err)
	}
	return client, directory
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRequestsHaveTheTokenThatIsMountedNow(t *testing.T) {
	var tokens []string
	client, directory := newTestClient(t, func(_ http.ResponseWriter, r *http.Request) { tokens = append(tokens, r.Header.Get("Authorization")) })
	for _, token := range []string{"one", "two"} {
		writeFile(t, filepath.Join(directory, "token"), token+"\n")
		response, err := client.Do(t.Context(), http.MethodGet, "/api", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	if got := strings.Join(tokens, ", "); got != "Bearer one, Bearer two" {
		t.Error(got)
	}
}

func TestErrorsHaveTheMessageOfTheStatus(t *testing.T) {
	for want, body := range map[string]string{
		"pods is forbidden":       `{"kind": "Status", "message": "pods is forbidden"}`,
		"no JSON":                 "no JSON\n",
		strings.Repeat("x", 1024): strings.Repeat("x", 1<<20),
	} {
		client, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, body)
		})
		_, err := client.Do(t.Context(), http.MethodGet, "/api", nil, nil) //nolint:bodyclose // there is no body
		status := (*StatusError)(nil)
		if !errors.As(err, &status) || status.Code != http.StatusForbidden || status.Body != want || err.Error() != "the API server returned 403 Forbidden: "+want {
			t.Errorf("%v", err)
		}
	}
}

func TestClientOutsideAPodIsAnError(t *testing.T) {
	directory := t.TempDir()
	if _, err := New(func(string) string { return "" }, directory); err == nil || !strings.Contains(err.Error(), "KUBERNETES_SERVICE_HOST") {
		t.Error(err)
	}
	writeFile(t, filepath.Join(directory, "ca.crt"), "none")
	if _, err := New(func(string) string { return "1" }, directory); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Error(err)
	}
}
