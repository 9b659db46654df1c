// Package flagenv sets flags from environment variables, such as --kube-api-qps from YARDMASTER_KUBE_API_QPS, and parses lists.
package flagenv

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"strings"
)

// Lookup returns an environment variable, as os.LookupEnv does.
type Lookup func(name string) (value string, found bool)

// Set sets the flags that are not in the parsed arguments.
func Set(flags *flag.FlagSet, environment Lookup) error {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })

	var errs []error
	flags.VisitAll(func(f *flag.Flag) {
		variable := "YARDMASTER_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, found := environment(variable)
		if !found || given[f.Name] {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("invalid value %q of %s: %w", value, variable, err))
		}
	})
	return errors.Join(errs...)
}

// AppendPrefixes appends the networks of a list of CIDRs.
func AppendPrefixes(networks *[]netip.Prefix, list string) error {
	for _, text := range SplitList(list) {
		network, err := netip.ParsePrefix(text)
		if err != nil || network != network.Masked() || network.Addr().Is4In6() {
			return fmt.Errorf("%q is not a network such as 10.0.0.0/8 or fd00::/8", text)
		}
		*networks = append(*networks, network)
	}
	return nil
}

// SplitList splits at commas and drops empty items.
func SplitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
