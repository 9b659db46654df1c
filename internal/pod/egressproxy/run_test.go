package egressproxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
)

func getStatus(t *testing.T, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	raw, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(raw)
}

func newConfig(t *testing.T) []byte {
	t.Helper()
	text, err := adminauth.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := adminauth.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(sessionrunner.Config{Namespace: "team", PublicKeys: keys.PublicKey(), Runners: map[string][]string{"default": {"api.example.com:443"}}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// The kubelet may mount an earlier version of the ConfigMap first.
func TestProxyStartsWithTheExpectedConfigurationAndStopsWhenItsTunnelsHaveEnded(t *testing.T) {
	config := newConfig(t)
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, newConfig(t), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &settings{
		config: file, hash: decision.HexDigest(config, HashLength), drain: testTimeout,
		proxy: ports.Reserve(t).String(), health: ports.Reserve(t).String(), metrics: ports.Reserve(t).String(),
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, slog.New(slog.DiscardHandler)) }()
	ready := func() bool { status, _ := getStatus(t, "http://"+s.health+"/readyz"); return status == http.StatusOK }
	poll.Until(t, "the health server to respond", func() bool { status, _ := getStatus(t, "http://"+s.health+"/healthz"); return status == http.StatusOK })
	if ready() {
		t.Error("the proxy is ready with an earlier configuration")
	}
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the proxy to be ready", ready)
	if status, body := getStatus(t, "http://"+s.proxy+"/"); status != http.StatusMethodNotAllowed {
		t.Errorf("a request without CONNECT: %d %s", status, body)
	}
	if _, body := getStatus(t, "http://"+s.metrics+"/metrics"); !strings.Contains(body, `yardmaster_egress_refused_total{namespace="team",reason="MethodNotAllowed",runner=""} 1`) {
		t.Errorf("metrics:\n%s", body)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestProxyDoesNotStartWithAnInvalidConfiguration(t *testing.T) {
	for title, text := range map[string]string{"no JSON": "x", "no key": `{"namespace":"team"}`, "an address as a host": `{"runners":{"a":["10.0.0.1"]}}`} {
		if _, err := newOptions([]byte(text)); err == nil {
			t.Errorf("%s is accepted", title)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := waitForConfig(ctx, filepath.Join(t.TempDir(), "missing"), "hash", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a missing file is accepted")
	}
}

func TestDrainWaitsForOpenTunnelsAndThenClosesThem(t *testing.T) {
	p := newTestProxy(t)
	c, status, body := p.connect("example.com:"+p.port, "fix", p.token())
	if status != http.StatusOK {
		t.Fatalf("%d: %s", status, body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	p.proxy.Drain(ctx)
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Error("Drain did not wait for the tunnel")
	}
	if _, err := io.ReadAll(c); err != nil {
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			t.Error("the tunnel is still open")
		}
	}
}
