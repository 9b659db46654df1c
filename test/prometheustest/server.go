// Package prometheustest starts Prometheus servers for tests.
package prometheustest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

// Start starts a Prometheus server that has samples in the format OpenMetrics, and returns its address. Debian's package prometheus
// has the server and promtool.
func Start(t *testing.T, samples string) string {
	t.Helper()
	dir := t.TempDir()
	file, data, config := filepath.Join(dir, "samples"), filepath.Join(dir, "data"), filepath.Join(dir, "prometheus.yml")
	for path, content := range map[string]string{file: samples + "# EOF\n", config: "global: {}\n"} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "tsdb", "create-blocks-from", "openmetrics", file, data).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v: %s", err, out)
	}
	address := ports.Reserve(t).String()
	ctx, stop := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, "prometheus", "--config.file="+config, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=10y", "--web.listen-address="+address)
	output := &bytes.Buffer{}
	server.Stderr = output
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		stop()
		_ = server.Wait()
	})
	if err := poll.UntilNil(t.Context(), func() error { return checkReady(t.Context(), "http://"+address) }); err != nil {
		t.Fatalf("Prometheus is not ready: %v: %s", err, output)
	}
	return "http://" + address
}

func checkReady(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/-/ready", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
