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

// apiWrites are requests that changed something, counted by the API server. Only the
// operator or the loop makes Jobs and changes SequentialJobs, so these are all theirs.
type apiWrites struct {
	objects float64 // Jobs made, SequentialJobs and their statuses patched
	dryRuns float64 // tries, which change nothing
}

func (w apiWrites) difference(before apiWrites) apiWrites {
	return apiWrites{objects: w.objects - before.objects, dryRuns: w.dryRuns - before.dryRuns}
}

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
	madeJob := label["resource"] == "jobs" && label["verb"] == "POST"
	patched := label["resource"] == "sequentialjobs" && label["verb"] == "PATCH"
	switch {
	case madeJob && label["dry_run"] != "":
		w.dryRuns += metric.GetCounter().GetValue()
	case madeJob, patched:
		w.objects += metric.GetCounter().GetValue()
	}
}
