// Package flagenv sets flags from environment variables, such as --kube-api-qps from YARDMASTER_KUBE_API_QPS, and parses lists.
package flagenv

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"strings"
)

const prefix = "YARDMASTER_"

// Set sets the flags that are not in the parsed arguments from environment, which has the form of os.Environ. A variable with the
// prefix YARDMASTER_ that names no flag is an error: a misspelled name would turn a setting off without a message. --version is no setting.
func Set(flags *flag.FlagSet, environment []string) error {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	names := map[string]string{}
	flags.VisitAll(func(f *flag.Flag) {
		if f.Name == "version" {
			return
		}
		names[prefix+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))] = f.Name
	})

	var errs []error
	for _, entry := range environment {
		variable, value, _ := strings.Cut(entry, "=")
		name, known := names[variable]
		switch {
		case !strings.HasPrefix(variable, prefix) || given[name]:
		case !known:
			errs = append(errs, fmt.Errorf("%s is set, but there is no flag --%s", variable,
				strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(variable, prefix), "_", "-"))))
		default:
			if err := flags.Set(name, value); err != nil {
				errs = append(errs, fmt.Errorf("invalid value %q of %s: %w", value, variable, err))
			}
		}
	}
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
