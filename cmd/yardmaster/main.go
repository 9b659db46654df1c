// Command yardmaster is the operator. With the argument worker it is a worker, with egress-proxy the proxy of the
// sessions of a namespace, with gateway the HTTP endpoint for producers, and with network-check it checks whether the
// network of its Pod enforces NetworkPolicies.
// With version, also after one of these, it prints its version.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/internal/gateway"
	"github.com/yardmaster/yardmaster/internal/operator"
	"github.com/yardmaster/yardmaster/internal/pod/egressproxy"
	"github.com/yardmaster/yardmaster/internal/pod/networkcheck/prober"
	"github.com/yardmaster/yardmaster/internal/pod/workercommand"
	"github.com/yardmaster/yardmaster/internal/version"
)

func main() {
	if isVersionCommand(os.Args[1:]) {
		fmt.Println(version.Describe("yardmaster"))
		return
	}
	if len(os.Args) > 1 && commands[os.Args[1]] != nil {
		if err := commands[os.Args[1]](os.Args[2:]); !errors.Is(err, flag.ErrHelp) {
			exitOnError(err)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "network-check" {
		exitCode, err := prober.Run(ctrl.SetupSignalHandler(), os.Args[2:], os.Stdout)
		exitOnError(err)
		os.Exit(exitCode)
	}
	runOperator()
}

// runOperator runs the operator. All its output is its log, except for help and version.
func runOperator() {
	options, err := operator.ParseFlags(os.Args[1:], os.Environ(), os.Stderr)
	if errors.Is(err, flag.ErrHelp) || errors.Is(err, operator.ErrVersionRequested) {
		return
	}
	ctx := ctrl.SetupSignalHandler()
	logger := operator.SetLogger(ctx, &options.Log)
	var config *rest.Config
	if err == nil {
		config, err = ctrl.GetConfig()
	}
	if err == nil {
		err = operator.Run(ctx, config, options)
	}
	if err != nil {
		logger.Error(err, "The operator cannot continue")
		os.Exit(1)
	}
}

// isVersionCommand reports whether the arguments are version, or a command and version.
func isVersionCommand(args []string) bool {
	if len(args) == 2 && slices.Contains([]string{"worker", "egress-proxy", "gateway", "network-check"}, args[0]) {
		args = args[1:]
	}
	return len(args) == 1 && args[0] == "version"
}

// commands are programs of their own, by the first argument.
var commands = map[string]func(args []string) error{
	"worker": func(args []string) error {
		return workercommand.Run(context.Background(), args, os.Stdout, os.Stderr)
	},
	"egress-proxy": func(args []string) error { return egressproxy.Run(context.Background(), args, os.Stderr) },
	"gateway":      func(args []string) error { return gateway.Main(args, os.Environ(), os.Stderr) },
}

func exitOnError(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "yardmaster:", err)
		os.Exit(1)
	}
}
