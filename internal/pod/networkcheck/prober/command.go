package prober

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/networkcheck"
)

// exitCodes of the results; 0 for Enforced.
var exitCodes = map[networkcheck.Result]int{networkcheck.Unknown: networkcheck.ExitUnknown, networkcheck.NotEnforced: networkcheck.ExitNotEnforced}

var messages = map[networkcheck.Result]string{
	networkcheck.Unknown:     "the operator cannot be reached, so it is not known whether NetworkPolicies are enforced",
	networkcheck.Enforced:    "NetworkPolicies are enforced",
	networkcheck.NotEnforced: "NetworkPolicies are not enforced",
}

// Run runs the command, which checks the network of its Pod, and returns its exit code. It writes the result to out.
func Run(ctx context.Context, args []string, out io.Writer) (exitCode int, err error) {
	o := Options{ControlPort: networkcheck.ControlPort, DeniedPort: networkcheck.DeniedPort}
	flags := flag.NewFlagSet("yardmaster network-check", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Func("address", "An address of the operator. May be repeated.", func(value string) error {
		address, err := netip.ParseAddr(value)
		o.Addresses = append(o.Addresses, address)
		return err
	})
	flags.DurationVar(&o.EnforceTimeout, "enforce-timeout", 20*time.Second, "How long the network may take to enforce the policies of a new Pod.")
	timeout := flags.Duration("timeout", time.Minute, "How long to try to reach the operator.")
	resultFile := flags.String("result-file", "", "File to which the result is written.")
	reportOnly := flags.Bool("report-only", false, "Exit with 0 whatever the result.")
	if err := flags.Parse(args); err != nil {
		return 1, err
	}
	if len(o.Addresses) == 0 || flags.NArg() > 0 {
		return 1, fmt.Errorf("network-check takes at least one --address, and no arguments: got %d addresses and %q", len(o.Addresses), flags.Args())
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	result := Check(ctx, o)
	fmt.Fprintln(out, messages[result])
	if *resultFile != "" {
		if err := os.WriteFile(*resultFile, []byte(result.String()), 0o644); err != nil { //nolint:gosec // not a secret
			return 1, err
		}
	}
	if *reportOnly {
		return 0, nil
	}
	return exitCodes[result], nil
}
