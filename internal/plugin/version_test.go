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

func TestVersionPrintsOneLine(t *testing.T) {
	code, out, errOut := runPlugin(t, "version")
	if code != exitSuccess || strings.Count(out, "\n") != 1 || strings.TrimSpace(out) == "" || errOut != "" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
}
