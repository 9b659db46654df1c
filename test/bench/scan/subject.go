package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	jobreportcontroller "github.com/yardmaster/yardmaster/internal/kinds/jobreport/controller"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// Roles of the measured processes.
const (
	bareListSubject  = "bare-list"
	firstScanSubject = "scan-first" // creates the reports
	laterScanSubject = "scan-again" // the reports exist and do not change
)

// The bare loop uses the scanner's page size and concurrency.
const (
	listPageSize    = 500
	listConcurrency = 4
)

// runSubject makes one scan, and prints its duration in nanoseconds.
func runSubject(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("%s KUBECONFIG NAMESPACES JOBS", args[0])
	}
	jobs, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	c, err := harness.ConnectToCluster(args[1])
	if err != nil {
		return err
	}
	namespaces := strings.Split(args[2], ",")
	// Connecting and API discovery happen once in a process and are not measured.
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &v1alpha1.JobReportList{}} {
		if err := c.List(ctx, list, client.Limit(1)); err != nil {
			return err
		}
	}
	startedAt := time.Now()
	if args[0] != bareListSubject {
		jobreportcontroller.New(c, c, events.NewFakeRecorder(100), logr.Discard(), reportOptions(namespaces)).ReconcileAll(ctx)
	} else if err := listAllJobs(ctx, c, namespaces, jobs); err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, time.Since(startedAt).Nanoseconds())
	return err
}

// reportOptions returns options with which every Job is a finding. This is the most expensive
// case.
func reportOptions(namespaces []string) jobreportcontroller.Options {
	thresholds := jobreport.DefaultThresholds()
	thresholds[jobreport.ReasonExternallyManaged].Suspicious = time.Nanosecond
	return jobreportcontroller.Options{Namespaces: namespaces, Interval: time.Hour, MaxFindings: 50, Thresholds: thresholds}
}

// listAllJobs is the least that a client needs to read all Jobs.
func listAllJobs(ctx context.Context, c client.Reader, namespaces []string, want int) error {
	seen := make([]int, len(namespaces))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listConcurrency)
	for i, namespace := range namespaces {
		group.Go(func() error {
			for token := ""; ; {
				var jobs batchv1.JobList
				if err := c.List(ctx, &jobs, client.InNamespace(namespace), client.Limit(listPageSize), client.Continue(token)); err != nil {
					return err
				}
				seen[i] += len(jobs.Items)
				if token = jobs.Continue; token == "" {
					return nil
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	total := 0
	for _, n := range seen {
		total += n
	}
	if total != want {
		return fmt.Errorf("the bare loop listed %d Jobs, want %d", total, want)
	}
	return nil
}
