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

// apiWrites counts requests that changed objects, according to the API server. Only the
// measured process creates Jobs and patches SequentialJobs.
type apiWrites struct {
	objects float64 // created Jobs, isSequencePatch SequentialJobs and statuses
	dryRuns float64 // these change nothing
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
	isJobCreation := label["resource"] == "jobs" && label["verb"] == "POST"
	isSequencePatch := label["resource"] == "sequentialjobs" && label["verb"] == "PATCH"
	switch {
	case isJobCreation && label["dry_run"] != "":
		w.dryRuns += metric.GetCounter().GetValue()
	case isJobCreation, isSequencePatch:
		w.objects += metric.GetCounter().GetValue()
	}
}
