// Command go is the quick start of docs/worker.md in Go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/yardmaster/yardmaster/worker"
)

func main() {
	options, err := worker.FromEnvironment()
	if err != nil {
		log.Fatal(err)
	}
	err = worker.Run(context.Background(), options, func(_ context.Context, job *worker.Job) error {
		if !json.Valid(job.Payload) {
			return worker.DeadLetter("the payload is not JSON")
		}
		fmt.Println("job", job.ID, string(job.Payload))
		return nil // the job is done
	})
	if err != nil {
		log.Fatal(err)
	}
}
