// Command yardmaster is the operator.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/internal/manager"
)

func main() {
	options, err := manager.Parse(os.Args[1:], os.LookupEnv, os.Stderr)
	if errors.Is(err, flag.ErrHelp) || errors.Is(err, manager.ErrVersion) {
		return
	}
	exitOn(err)
	config, err := ctrl.GetConfig()
	exitOn(err)
	exitOn(manager.Run(ctrl.SetupSignalHandler(), config, options))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "yardmaster:", err)
		os.Exit(1)
	}
}
