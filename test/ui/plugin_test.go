package ui

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
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
	proxy := newAPIServerProxy(t)
	command := exec.Command(pluginPath, append([]string{"ui", "--no-browser", "--kubeconfig", proxy.writeKubeconfig(t)}, args...)...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
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

// memory returns the most memory that the process has used, in bytes.
func (u *runningUI) memory(t *testing.T) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", u.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Fatal("the memory of the process is unknown")
	return 0
}
