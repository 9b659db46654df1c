package ui

import (
	"fmt"
	"net/url"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/page"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// BenchmarkPageOf5000Objects computes what the stream of a page sends after a change.
func BenchmarkPageOf5000Objects(b *testing.B) {
	var objects []client.Object
	for i := range 5000 {
		sj := testbuilder.SequentialJob(fmt.Sprintf("etl-%04d", i), "a").Step("extract").Step("transform").Step("load").Obj()
		sj.Status = v1alpha1.SequentialJobStatus{Phase: v1alpha1.PhaseRunning, RunStatus: v1alpha1.RunStatus{Run: 1}}
		if i%20 == 0 {
			sj.Status.Phase = v1alpha1.PhaseFailed
		}
		objects = append(objects, sj)
	}
	s := newTestServer(b, objects)
	for _, path := range []string{"/", "/k/seq", "/k/seq?q=etl-0001", "/k/seq/a/etl-0001"} {
		b.Run(path, func(b *testing.B) {
			address, err := url.Parse(path)
			if err != nil {
				b.Fatal(err)
			}
			place := parseLocation(address.Path, address.Query())
			b.ReportAllocs()
			for b.Loop() {
				html, err := page.Render(s.content(b.Context(), place, s.Store.Snapshot()))
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(html)))
			}
		})
	}
}
