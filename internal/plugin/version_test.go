package plugin

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestVersionNeedsNoCluster(t *testing.T) {
	var out bytes.Buffer
	if code := Run(t.Context(), []string{"version", "--kubeconfig", "missing"}, &out, io.Discard); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.HasPrefix(out.String(), "kubectl-yardmaster ") {
		t.Errorf("printed %q", out.String())
	}
}
