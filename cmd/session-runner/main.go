// Command session-runner runs the command line of an agent as an AgenticSession. With the argument git, it clones and pushes
// the repositories of one, and with archive, it stores its transcript: see docs/agents.md. With archive-logs, it stores the
// logs of a SequentialJob. It is a program of its own, because images of agents contain it, and it needs a fraction of the
// operator's memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/yardmaster/yardmaster/internal/pod/modelproxy"
	"github.com/yardmaster/yardmaster/internal/pod/runner"
	"github.com/yardmaster/yardmaster/internal/pod/sessionarchive"
	"github.com/yardmaster/yardmaster/internal/pod/sessiongit"
	"github.com/yardmaster/yardmaster/internal/version"
)

// containers are what runs next to an agent, with credentials that it does not get.
var containers = map[string]func(ctx context.Context, args []string, getenv func(string) string, errOut io.Writer) error{
	"git": sessiongit.Run, "model": modelproxy.Run, "archive": sessionarchive.Run, "archive-logs": sessionarchive.RunLogs,
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "version" {
		fmt.Println(version.Describe("session-runner"))
		return
	}
	if sessiongit.IsAskpass() {
		answer, err := sessiongit.Askpass(os.Args[1:], os.Getenv)
		exitOnError(err)
		fmt.Println(answer)
		return
	}
	if len(os.Args) > 1 {
		if container, found := containers[os.Args[1]]; found {
			if err := container(context.Background(), os.Args[2:], os.Getenv, os.Stderr); !errors.Is(err, flag.ErrHelp) {
				exitOnError(err)
			}
			return
		}
	}
	code, err := runner.Run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "session-runner:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func exitOnError(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "session-runner:", err)
		os.Exit(1)
	}
}
