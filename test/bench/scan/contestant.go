package main

import (
	"context"
	"errors"
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
	"github.com/yardmaster/yardmaster/internal/controller/jobreport"
	"github.com/yardmaster/yardmaster/internal/zombie"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// These, as the first argument, make this program one of those that are measured.
const (
	bareList  = "bare-list"
	scanFirst = "scan-first" // there are no reports yet
	scanAgain = "scan-again" // there are, and they stay as they are
)

// The bare loop asks as the scanner does.
const (
	page   = 500
	atOnce = 4
)

// runContestant makes one scan, and prints how many nanoseconds it took.
func runContestant(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("%s KUBECONFIG NAMESPACES JOBS", args[0])
	}
	jobs, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	c, err := harness.Connect(args[1])
	if err != nil {
		return err
	}
	namespaces := strings.Split(args[2], ",")
	// Connecting, and asking what kinds there are, is done once in a process, and not measured.
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &v1alpha1.JobReportList{}} {
		if err := c.List(ctx, list, client.Limit(1)); err != nil {
			return err
		}
	}
	begun := time.Now()
	if args[0] != bareList {
		jobreport.New(c, c, events.NewFakeRecorder(100), logr.Discard(), options(namespaces)).ReconcileAll(ctx)
	} else if err := list(ctx, c, namespaces, jobs); err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, time.Since(begun).Nanoseconds())
	return err
}

// options find fault with every Job: there is most to do then.
func options(namespaces []string) jobreport.Options {
	thresholds := zombie.DefaultThresholds()
	thresholds[zombie.ReasonExternallyManaged].Suspicious = time.Nanosecond
	return jobreport.Options{Namespaces: namespaces, Interval: time.Hour, MaxFindings: 50, Thresholds: thresholds}
}

// list is the least that sees all Jobs.
func list(ctx context.Context, c client.Reader, namespaces []string, want int) error {
	seen := make([]int, len(namespaces))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, namespace := range namespaces {
		group.Go(func() error {
			for token := ""; ; {
				var jobs batchv1.JobList
				if err := c.List(ctx, &jobs, client.InNamespace(namespace), client.Limit(page), client.Continue(token)); err != nil {
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
		return errors.New("the bare loop has seen " + strconv.Itoa(total) + " Jobs")
	}
	return nil
}
