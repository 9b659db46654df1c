// Package prometheustest starts Prometheus servers for tests.
package prometheustest

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Start starts a Prometheus server that has samples in the format OpenMetrics, and returns its address. Debian's package
// prometheus has the server and promtool.
func Start(t *testing.T, samples string) string {
	t.Helper()
	dir := t.TempDir()
	file, data, config := filepath.Join(dir, "samples"), filepath.Join(dir, "data"), filepath.Join(dir, "prometheus.yml")
	for path, content := range map[string]string{file: samples + "# EOF\n", config: "global: {}\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "tsdb", "create-blocks-from", "openmetrics", file, data).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v: %s", err, out)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	ctx, stop := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, "prometheus", "--config.file="+config, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=10y", "--web.listen-address="+address)
	output := &bytes.Buffer{}
	server.Stderr = output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = server.Wait()
	})
	waitUntilReady(t, "http://"+address, output)
	return "http://" + address
}

func waitUntilReady(t *testing.T, address string, output *bytes.Buffer) {
	t.Helper()
	const limit = 30 * time.Second
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(20 * time.Millisecond) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/-/ready", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatalf("Prometheus is not ready: %s", output)
}
