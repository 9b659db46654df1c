package sessiongit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Variables with which this program answers git's questions for credentials.
const (
	askpassVariable     = "SESSION_GIT_ASKPASS" //nolint:gosec // the name of a variable, not a credential
	hostsVariable       = "SESSION_GIT_HOSTS"
	credentialsVariable = "SESSION_GIT_CREDENTIALS" //nolint:gosec // the same
)

const (
	maxErrorBytes = 1024
	// stopDelay is how long git has to end after SIGTERM.
	stopDelay = 2 * time.Second
)

type git struct {
	// credentials is the directory of the Secret; empty without credentials. Only hosts get them.
	credentials string
	hosts       []string
	// home is an empty directory.
	home string
	// environment are further variables, such as proxy variables.
	environment []string
}

// run runs a git command for the repository with this URL, and returns its output.
func (g *git) run(ctx context.Context, url string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", append([]string{ //nolint:gosec // readSession rejects what git would take for options
		"-c", "protocol.allow=never", "-c", "protocol.https.allow=always", "-c", "protocol.ssh.allow=always",
		"-c", "core.hooksPath=/dev/null", "-c", "credential.helper=", "-c", "credential.useHttpPath=false", "-c", "gc.auto=0",
	}, args...)...)
	command.Dir = g.home
	command.Env = append(append([]string(nil), g.environment...), "HOME="+g.home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_TERMINAL_PROMPT=0", "LC_ALL=C", "GIT_SSH_COMMAND="+g.sshCommand(url))
	if g.credentials != "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		command.Env = append(command.Env, "GIT_ASKPASS="+self, askpassVariable+"=1",
			hostsVariable+"="+strings.Join(g.hosts, ","), credentialsVariable+"="+g.credentials)
	}
	output, errOutput := &bytes.Buffer{}, &bytes.Buffer{}
	command.Stdout, command.Stderr = output, errOutput
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = stopDelay
	if err := command.Run(); err != nil {
		text := strings.TrimSpace(errOutput.String())
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, text[max(0, len(text)-maxErrorBytes):])
	}
	return strings.TrimSpace(output.String()), nil
}

// sshCommand uses the private key only for allowed hosts, and no other key or agent.
func (g *git) sshCommand(url string) string {
	const options = "ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes -o IdentityAgent=none"
	if g.credentials == "" || !isHostIn(hostOf(url), g.hosts) {
		return options + " -o IdentityFile=none -o UserKnownHostsFile=/dev/null"
	}
	return options + " -i " + filepath.Join(g.credentials, "ssh-privatekey") + " -o UserKnownHostsFile=" + filepath.Join(g.credentials, "known_hosts")
}

// isHostIn reports whether a list contains a host, with its port unless it is 443.
func isHostIn(host string, hosts []string) bool {
	for _, allowed := range hosts {
		if host != "" && strings.EqualFold(host, strings.TrimSuffix(allowed, ":443")) {
			return true
		}
	}
	return false
}

// hostOf returns the host of a URL, or of git@host:path.
func hostOf(url string) string {
	_, rest, isURL := strings.Cut(url, "://")
	if !isURL {
		rest = strings.Replace(url, ":", "/", 1)
	}
	host, _, _ := strings.Cut(rest, "/")
	if i := strings.LastIndex(host, "@"); i >= 0 {
		host = host[i+1:]
	}
	return strings.TrimSuffix(host, ":443")
}

// IsAskpass reports whether git started this program to ask for credentials.
func IsAskpass() bool { return os.Getenv(askpassVariable) != "" }

// Askpass answers git's question for a user name or a password, such as "Password for 'https://user@host': ". The question has the
// host of the connection, also after a redirection.
func Askpass(args []string, getenv func(string) string) (string, error) {
	if len(args) != 1 {
		return "", errors.New("git must ask one question")
	}
	if host := askedHost(args[0]); !isHostIn(host, strings.Split(getenv(hostsVariable), ",")) {
		return "", fmt.Errorf("the SessionRunner does not allow credentials for %s: add it to git.hosts", host)
	}
	return readCredential(getenv(credentialsVariable), strings.HasPrefix(args[0], "Username"))
}

// askedHost returns the host in git's question; empty if it is not https. A redirection chooses the user name, which git before 2.48
// does not escape. So the host is the text after the last @: a user name may contain quotes and slashes, and a host contains neither.
// Git asks without a path (credential.useHttpPath).
func askedHost(question string) string {
	_, rest, _ := strings.Cut(question, " for '")
	url, found := strings.CutSuffix(strings.TrimRight(rest, " "), "':")
	authority, isHTTPS := strings.CutPrefix(url, "https://")
	if !found || !isHTTPS {
		return ""
	}
	host := authority[strings.LastIndexByte(authority, '@')+1:]
	return strings.TrimSuffix(host, ":443")
}

// readCredential reads the user name or the password of a Secret of the type kubernetes.io/basic-auth. Forges accept any user name
// with a token.
func readCredential(directory string, isUsername bool) (string, error) {
	name := "password"
	if isUsername {
		name = "username"
	}
	raw, err := os.ReadFile(filepath.Join(directory, name))
	if errors.Is(err, os.ErrNotExist) && isUsername {
		return "x-access-token", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the Secret of the SessionRunner's git: %w", err)
	}
	return strings.TrimRight(string(raw), "\r\n"), nil
}
