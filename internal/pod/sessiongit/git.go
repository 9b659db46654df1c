package sessiongit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Variables with which this program answers git's questions for credentials.
const (
	askpassVariable     = "SESSION_GIT_ASKPASS" //nolint:gosec // the name of a variable, not a credential
	grantVariable       = "SESSION_GIT_GRANT"
	credentialsVariable = "SESSION_GIT_CREDENTIALS" //nolint:gosec // the same
	tokenVariable       = "SESSION_GIT_TOKEN"       //nolint:gosec // the same
)

const (
	maxErrorBytes = 1024
	// stopDelay is how long git has to end after SIGTERM.
	stopDelay = 2 * time.Second
)

type git struct {
	// credentials is the directory of the Secret; empty without credentials. Only repositories of the scope get them.
	credentials string
	scope       Scope
	// forge makes tokens, if the credentials are a GitHub App.
	forge *forgeClient
	// home is an empty directory.
	home string
	// environment are further variables, such as proxy variables.
	environment []string
}

// run runs a git command for the repository with this URL, and returns its output.
func (g *git) run(ctx context.Context, url string, args ...string) (string, error) {
	options := []string{
		"-c", "protocol.allow=never", "-c", "protocol.https.allow=always", "-c", "protocol.ssh.allow=always",
		"-c", "core.hooksPath=/dev/null", "-c", "credential.helper=", "-c", "credential.useHttpPath=true", "-c", "gc.auto=0",
	}
	grant := g.scope.grant(url)
	if grant != nil { // a redirection to another repository of this host would get the credentials
		options = append(options, "-c", "http.followRedirects=false")
	}
	command := exec.CommandContext(ctx, "git", append(options, args...)...) //nolint:gosec // readSession rejects what git would take for options
	command.Dir = g.home
	command.Env = append(append([]string(nil), g.environment...), "HOME="+g.home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_TERMINAL_PROMPT=0", "LC_ALL=C", "GIT_SSH_COMMAND="+g.sshCommand(grant))
	if g.credentials != "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		command.Env = append(command.Env, "GIT_ASKPASS="+self, askpassVariable+"=1", credentialsVariable+"="+g.credentials)
	}
	if g.credentials != "" && grant != nil {
		command.Env = append(command.Env, grantVariable+"="+grant.url)
	}
	if g.credentials != "" && grant != nil && !grant.isSSH {
		access := readAccess
		if slices.Contains(args, "push") {
			access = pushAccess
		}
		token, revoke, err := g.forge.appToken(ctx, grant.url, access)
		if err != nil {
			return "", err
		}
		defer revoke()
		command.Env = append(command.Env, tokenVariable+"="+token)
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

// sshCommand uses the private key only for a repository that gets the credentials, and no other key or agent.
func (g *git) sshCommand(grant *location) string {
	const options = "ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes -o IdentityAgent=none"
	if grant == nil {
		return options + " -o IdentityFile=none -o UserKnownHostsFile=/dev/null"
	}
	return options + " -i " + filepath.Join(g.credentials, "ssh-privatekey") + " -o UserKnownHostsFile=" + filepath.Join(g.credentials, "known_hosts")
}

// IsAskpass reports whether git started this program to ask for credentials.
func IsAskpass() bool { return os.Getenv(askpassVariable) != "" }

// Askpass answers git's question for a user name or a password of the repository that gets the credentials, such as "Password for
// 'https://user@host/path': ".
func Askpass(args []string, getenv func(string) string) (string, error) {
	if len(args) != 1 {
		return "", errors.New("git must ask one question")
	}
	if asked := askedRepository(args[0]); asked == "" || asked != strings.TrimPrefix(getenv(grantVariable), "https://") {
		return "", fmt.Errorf("the SessionRunner allows no credentials for %s: add it to git.repositories", asked)
	}
	isUsername := strings.HasPrefix(args[0], "Username")
	switch token := getenv(tokenVariable); {
	case token == "":
		return readCredential(getenv(credentialsVariable), isUsername)
	case isUsername:
		return tokenUsername, nil
	default:
		return token, nil
	}
}

// askedRepository returns the host and the path in git's question (credential.useHttpPath); empty if it is not https. They are the text
// after the last @, which no repository with credentials has: git before 2.48 does not escape the user name.
func askedRepository(question string) string {
	_, rest, _ := strings.Cut(question, " for '")
	url, found := strings.CutSuffix(strings.TrimRight(rest, " "), "':")
	authority, isHTTPS := strings.CutPrefix(url, "https://")
	if !found || !isHTTPS {
		return ""
	}
	return authority[strings.LastIndexByte(authority, '@')+1:]
}

// tokenUsername is the user name of tokens. GitHub requires it for those of an App.
const tokenUsername = "x-access-token"

// readCredential reads the user name or the password of a Secret of the type kubernetes.io/basic-auth. Forges accept any user name
// with a token.
func readCredential(directory string, isUsername bool) (string, error) {
	name := "password"
	if isUsername {
		name = "username"
	}
	raw, err := os.ReadFile(filepath.Join(directory, name))
	if errors.Is(err, os.ErrNotExist) && isUsername {
		return tokenUsername, nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the Secret of the SessionRunner's git: %w", err)
	}
	return strings.TrimRight(string(raw), "\r\n"), nil
}
