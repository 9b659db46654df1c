package ui

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

// runningUI is a running `kubectl yardmaster ui`.
type runningUI struct {
	*exec.Cmd

	proxy *apiServerProxy
	// loginURL works once; base is the address of the overview.
	loginURL, base string
}

// startUI starts the command.
func startUI(t *testing.T, args ...string) *runningUI {
	t.Helper()
	return startUIBehind(t, newAPIServerProxy(t), args...)
}

// startUIBehind starts the command, whose API server is the proxy.
func startUIBehind(t *testing.T, proxy *apiServerProxy, args ...string) *runningUI {
	t.Helper()
	command := exec.Command(pluginPath, append([]string{"ui", "--no-browser", "--kubeconfig", proxy.writeKubeconfig(t)}, args...)...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	u := &runningUI{Cmd: command, proxy: proxy}
	t.Cleanup(u.stop)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "http://") {
			u.loginURL = lines.Text()
			u.base, _, _ = strings.Cut(u.loginURL, "/login")
			go io.Copy(io.Discard, out)
			return u
		}
	}
	t.Fatal("the command printed no address")
	return nil
}

func (u *runningUI) stop() {
	_ = u.Process.Kill()
	_ = u.Wait()
}
