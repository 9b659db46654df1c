// Command release is a worker with a defect that the environment variable DEFECT selects:
//
//	good             none
//	dependency-down  none, but its jobs fail, as those of any version do
//	idle             it does nothing, and has no admin API
//	fail             all of its jobs fail
//	fail-half        half of its jobs fail
//	password         it uses the broker at the URL in BROKER, which has a wrong password
//	crash            it exits after a second
//	unready          it never becomes ready, and has no broker
//	hang             its jobs never end
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/worker"
)

func main() {
	if err := runRelease(os.Getenv("DEFECT")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func runRelease(defect string) error {
	switch defect {
	case "idle":
		select {}
	case "crash":
		time.Sleep(time.Second)
		return errors.New("as requested")
	case "unready":
		server := &http.Server{Addr: ":8081", ReadHeaderTimeout: time.Second}
		server.Handler = http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
			response.WriteHeader(http.StatusServiceUnavailable)
		})
		return server.ListenAndServe()
	}
	options, err := worker.FromEnvironment()
	if err != nil {
		return err
	}
	if defect == "password" {
		if err := useWrongPassword(&options); err != nil {
			return err
		}
	}
	return worker.Run(context.Background(), options, func(ctx context.Context, _ *worker.Job) error {
		return doJob(ctx, defect)
	})
}

// useWrongPassword changes the configuration that the operator mounted: BROKER has another URL.
func useWrongPassword(options *worker.Options) error {
	content, err := os.ReadFile(options.ConfigFile)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(content, &options.Config); err != nil {
		return err
	}
	options.ConfigFile, options.Config.Broker = "", worker.BrokerConfig{URL: os.Getenv("BROKER")}
	return nil
}

func doJob(ctx context.Context, defect string) error {
	switch {
	case defect == "hang":
		<-ctx.Done()
		return context.Cause(ctx)
	case defect == "fail", defect == "dependency-down", defect == "fail-half" && rand.IntN(2) == 0: //nolint:gosec // no secret depends on it
		return errors.New("as requested")
	}
	time.Sleep(100 * time.Millisecond)
	return nil
}
