// Command yardmaster is the operator, and with the argument worker a worker.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/yardmaster/yardmaster/internal/manager"
	"github.com/yardmaster/yardmaster/internal/workercommand"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		err := workercommand.Run(context.Background(), os.Args[2:], os.Stdout, os.Stderr)
		if !errors.Is(err, flag.ErrHelp) {
			exitOn(err)
		}
		return
	}
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
