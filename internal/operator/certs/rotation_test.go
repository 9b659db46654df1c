package certs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
)

func TestOnlyServedWebhookConfigurationsGetTheCA(t *testing.T) {
	validating := rotator.WebhookInfo{Name: "yardmaster", Type: rotator.Validating}
	mutating := rotator.WebhookInfo{Name: "yardmaster", Type: rotator.Mutating}
	for name, row := range map[string]struct {
		rotation Rotation
		want     []rotator.WebhookInfo
	}{
		"validating webhooks only":         {Rotation{Webhooks: "yardmaster"}, []rotator.WebhookInfo{validating}},
		"validating and mutating webhooks": {Rotation{Webhooks: "yardmaster", Mutating: true}, []rotator.WebhookInfo{validating, mutating}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, row.rotation.webhookInfos()); diff != "" {
				t.Errorf("configurations (-want +got):\n%s", diff)
			}
		})
	}
}
