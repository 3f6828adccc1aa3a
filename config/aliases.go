package config

import (
	"slices"

	"weir/fleet"
)

// alias is a name that clients may use for a model of a class.
type alias struct {
	name, model string
	key, value  node
}

// aliases reads what clients may call models, and which of them each is.
func (n node) aliases() []alias {
	var out []alias
	for _, e := range n.entries(maxListed) {
		a := alias{e.key.text(), e.value.text(), e.key, e.value}
		switch {
		case a.name == "" || a.model == "":
			continue
		case a.name == a.model:
			e.value.wrong("remove it", "%q is its own name", a.name)
			continue
		}
		out = append(out, a)
	}
	return out
}

// withAliases adds to a rule, before it, those for the aliases that it is to take:
// of its model or, if it names none, of any.
func withAliases(rule fleet.Rule, aliases []alias) []fleet.Rule {
	var out []fleet.Rule
	for _, a := range aliases {
		if rule.Model == "" || rule.Model == a.model {
			other := rule
			other.Model, other.As = a.name, a.model
			out = append(out, other)
		}
	}
	return append(out, rule)
}

// known reports aliases of what is no model of the class.
func known(aliases []alias, c *fleet.Class) {
	own := *c
	own.Match = slices.DeleteFunc(slices.Clone(c.Match), func(r fleet.Rule) bool { return r.As != "" })
	for _, a := range aliases {
		if !slices.Contains(own.Models(), a.model) {
			a.value.wrong("name a model of its match or its requires", "the class has no model %q", a.model)
		}
	}
}
