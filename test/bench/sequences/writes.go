package main

import (
	"context"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// apiWrites counts requests to write, according to the API server. Only the measured process creates
// Jobs, creates Pods in dry runs, patches and updates SequentialJobs and writes events of the newer API.
type apiWrites struct {
	jobs     float64 // created Jobs
	updates  float64 // of SequentialJobs and their statuses, with PATCH and PUT
	events   float64
	jobTries float64 // dry runs of Jobs
	podTries float64 // dry runs of Pods
}

func (w apiWrites) difference(before apiWrites) apiWrites {
	return apiWrites{
		w.jobs - before.jobs, w.updates - before.updates, w.events - before.events,
		w.jobTries - before.jobTries, w.podTries - before.podTries,
	}
}

// further is the number of requests beyond those that create Jobs.
func (w apiWrites) further() float64 { return w.updates + w.events + w.jobTries + w.podTries }

func countWrites(ctx context.Context, c *harness.Cluster) (apiWrites, error) {
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return apiWrites{}, err
	}
	body, err := clientset.Discovery().RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return apiWrites{}, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	defer body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		return apiWrites{}, err
	}
	var w apiWrites
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		w.addMetric(metric)
	}
	return w, nil
}

func (w *apiWrites) addMetric(metric *dto.Metric) {
	label := map[string]string{}
	for _, pair := range metric.GetLabel() {
		label[pair.GetName()] = pair.GetValue()
	}
	isDryRun := label["dry_run"] != ""
	kind := label["verb"] + " " + label["resource"]
	count := metric.GetCounter().GetValue()
	switch {
	case kind == "POST jobs" && isDryRun:
		w.jobTries += count
	case kind == "POST pods" && isDryRun:
		w.podTries += count
	case kind == "POST jobs":
		w.jobs += count
	case kind == "PATCH sequentialjobs", kind == "PUT sequentialjobs":
		w.updates += count
	case label["group"] == "events.k8s.io" && (label["verb"] == "POST" || label["verb"] == "PATCH"):
		w.events += count
	}
}
