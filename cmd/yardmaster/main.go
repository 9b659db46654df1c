// Command yardmaster is the operator. With the argument worker it is a worker, with egress-proxy the proxy of the
// sessions of a namespace, and with network-check it checks whether the network of its Pod enforces NetworkPolicies.
// With version, also after one of these, it prints its version.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/internal/egressproxy"
	"github.com/yardmaster/yardmaster/internal/manager"
	"github.com/yardmaster/yardmaster/internal/networkcheck/prober"
	"github.com/yardmaster/yardmaster/internal/version"
	"github.com/yardmaster/yardmaster/internal/workercommand"
)

func main() {
	if isVersionCommand(os.Args[1:]) {
		fmt.Println(version.Describe("yardmaster"))
		return
	}
	if len(os.Args) > 1 && (os.Args[1] == "worker" || os.Args[1] == "egress-proxy") {
		if err := runCommand(os.Args[1], os.Args[2:]); !errors.Is(err, flag.ErrHelp) {
			exitOnError(err)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "network-check" {
		exitCode, err := prober.Run(ctrl.SetupSignalHandler(), os.Args[2:], os.Stdout)
		exitOnError(err)
		os.Exit(exitCode)
	}
	options, err := manager.ParseFlags(os.Args[1:], os.LookupEnv, os.Stderr)
	if errors.Is(err, flag.ErrHelp) || errors.Is(err, manager.ErrVersionRequested) {
		return
	}
	exitOnError(err)
	config, err := ctrl.GetConfig()
	exitOnError(err)
	exitOnError(manager.Run(ctrl.SetupSignalHandler(), config, options))
}

// isVersionCommand reports whether the arguments are version, or a command and version.
func isVersionCommand(args []string) bool {
	if len(args) == 2 && slices.Contains([]string{"worker", "egress-proxy", "network-check"}, args[0]) {
		args = args[1:]
	}
	return len(args) == 1 && args[0] == "version"
}

func runCommand(name string, args []string) error {
	if name == "worker" {
		return workercommand.Run(context.Background(), args, os.Stdout, os.Stderr)
	}
	return egressproxy.Run(context.Background(), args, os.Stderr)
}

func exitOnError(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "yardmaster:", err)
		os.Exit(1)
	}
}
