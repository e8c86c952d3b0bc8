// The messages of `spardl docs contention` in SimGrid: every message between two hosts of its own, over the links of its case.
// Prints, by case, how far SimGrid's times are from those in the input.
#include <simgrid/s4u.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

struct Message {
  std::string name;
  double start, bytes, end;
  double there = 0;
};

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  // The plain fluid model: no factors that stand for protocols, and links that do not feel the way back.
  engine.set_config("network/model:CM02");
  engine.set_config("network/crosstraffic:0");
  engine.set_config("network/TCP-gamma:0");
  auto* zone = sg4::create_full_zone("all");
  std::map<std::string, sg4::Link*> links;
  std::vector<Message> messages;
  std::vector<std::pair<sg4::Host*, sg4::Host*>> hosts;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    Message message;
    words >> message.name >> message.start >> message.bytes >> message.end;
    auto id = std::to_string(messages.size());
    auto* from = zone->create_host("s" + id, 1e9);
    auto* to = zone->create_host("r" + id, 1e9);
    std::vector<sg4::LinkInRoute> way;
    std::string number;
    double rate;
    while (words >> number >> rate) {
      auto*& link = links[message.name + "/" + number];
      if (link == nullptr) link = zone->create_link(message.name + "/" + number, rate)->set_latency(0)->seal();
      way.emplace_back(link);
    }
    zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, way, false);
    messages.push_back(message);
    hosts.emplace_back(from, to);
  }
  zone->seal();
  for (size_t i = 0; i < messages.size(); i++) {
    auto* box = sg4::Mailbox::by_name(std::to_string(i));
    sg4::Actor::create("send", hosts[i].first, [box, &messages, i] {
      sg4::this_actor::sleep_until(messages[i].start / 1e9);
      box->put(&messages[i], messages[i].bytes);
    });
    sg4::Actor::create("receive", hosts[i].second, [box, &messages, i] {
      box->get<Message>();
      messages[i].there = sg4::Engine::get_clock() * 1e9;
    });
  }
  engine.run();
  std::vector<std::string> names;
  for (auto& message : messages)
    if (names.empty() || names.back() != message.name) names.push_back(message.name);
  std::printf("| case | messages | mean time, us | largest difference, ns | largest difference, %% of the message's time |\n");
  std::printf("| --- | ---: | ---: | ---: | ---: |\n");
  for (auto& name : names) {
    double count = 0, sum = 0, nanos = 0, part = 0;
    for (auto& message : messages) {
      if (message.name != name) continue;
      double ours = message.end - message.start, theirs = message.there - message.start;
      count++, sum += ours;
      nanos = std::max(nanos, std::fabs(ours - theirs));
      part = std::max(part, std::fabs(ours - theirs) / theirs);
    }
    std::printf("| %s | %.0f | %.1f | %.0f | %.4f |\n", name.c_str(), count, sum / count / 1e3, nanos, 100 * part);
  }
}
