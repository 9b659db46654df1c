// Command yardmaster is the operator. With the argument worker it is a worker, with egress-proxy the proxy of the
// sessions of a namespace, and with network-check it checks whether the network of its Pod enforces NetworkPolicies.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/internal/egressproxy"
	"github.com/yardmaster/yardmaster/internal/manager"
	"github.com/yardmaster/yardmaster/internal/networkcheck/prober"
	"github.com/yardmaster/yardmaster/internal/workercommand"
)

func main() {
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
